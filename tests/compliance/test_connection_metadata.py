"""The facts that a connection tells about its provider: JMS 1.1 chapters 3.5.9 and 4.3.7."""

from __future__ import annotations

import pytest

from jmsql import Connection


@pytest.mark.requirement("connection.metadata.properties")
@pytest.mark.case("connection-metadata-01")
def test_group_properties_are_listed(connection: Connection) -> None:
    assert {"JMSXGroupID", "JMSXGroupSeq"} <= set(connection.metadata.jmsx_property_names)


@pytest.mark.requirement("connection.metadata.properties")
@pytest.mark.case("connection-metadata-01")
def test_versions_agree_with_their_numbers(connection: Connection) -> None:
    metadata = connection.metadata
    assert metadata.jms_version == f"{metadata.jms_major_version}.{metadata.jms_minor_version}" == "1.1"
    assert metadata.provider_version.startswith(f"{metadata.provider_major_version}.{metadata.provider_minor_version}")
