"""Facts about the provider."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from jmsql.public_names import set_module

_JMS_VERSION = (3, 1)


@cache
def _provider_version() -> str:
    return version("jmsql")


@set_module("jmsql.types")
@dataclass(frozen=True, slots=True)
class ConnectionMetaData:
    """Facts about the provider (JMS 1.1, chapter 4.3.7).

    Args:
        server_version: The version of the PostgreSQL server, as it tells it.
    """

    server_version: str

    @property
    def jms_version(self) -> str:
        """The version of Jakarta Messaging that the provider supports, the latest one: "3.1"."""
        return f"{self.jms_major_version}.{self.jms_minor_version}"

    @property
    def jms_major_version(self) -> int:
        """The first number of `jms_version`."""
        return _JMS_VERSION[0]

    @property
    def jms_minor_version(self) -> int:
        """The second number of `jms_version`."""
        return _JMS_VERSION[1]

    @property
    def jms_provider_name(self) -> str:
        """The provider's name."""
        return "jmsql"

    @property
    def provider_version(self) -> str:
        """The provider's version."""
        return _provider_version()

    @property
    def provider_major_version(self) -> int:
        """The first number of the provider's version."""
        return int(self.provider_version.split(".")[0])

    @property
    def provider_minor_version(self) -> int:
        """The second number of the provider's version."""
        return int(self.provider_version.split(".")[1])

    @property
    def jmsx_property_names(self) -> tuple[str, ...]:
        """The properties defined by JMS that messages can have here."""
        return ("JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount")
