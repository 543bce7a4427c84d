"""What is wrong with the database is said on the driver, before any task starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader
from jmsql.spark.streaming.queue_stream_reader import StreamReader
from jmsql.spark.writing.writer import BatchWriter
from tests.integration.client.server import Server, with_parameters

SCHEMA = StructType([StructField("text_body", StringType())])

PLANS: dict[str, Callable[[Options], object]] = {
    "batch read": lambda options: BatchReader(options, SCHEMA).partitions(),
    "streaming read": lambda options: StreamReader(options, SCHEMA).initialOffset(),
    "write": BatchWriter,
}


@pytest.fixture(params=list(PLANS))
def plan(
    request: pytest.FixtureRequest, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> Callable[..., object]:
    """Plans a read or a write of the queue `orders`."""
    server.rows("insert into jmsql_internal.queue (name) values ('orders')")
    chosen = PLANS[request.param]
    return lambda **options: chosen(Options.read({"queue": "orders", **options}))


@pytest.fixture(autouse=True)
def url(jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    return jmsql_clean_url


@pytest.fixture
def version(server: Server) -> Iterator[Callable[[str], None]]:
    """Sets the version of the schema, until the test ends."""
    ((found,),) = server.rows("select version_num from jmsql.schema_version")

    def write(number: str) -> None:
        server.rows("update jmsql.schema_version set version_num = %s", number)

    yield write
    write(found)


@pytest.fixture
def guest(server: Server) -> Iterator[str]:
    """A role without rights."""
    name = "spark_guest"
    server.rows("create role spark_guest login")
    yield name
    server.rows("drop owned by spark_guest")
    server.rows("drop role spark_guest")


def test_missing_schema_says_how_to_make_it(plan: Callable[..., object]) -> None:
    with pytest.raises(jmsql.JMSException, match="no schema 'elsewhere': run `jmsql migrate --schema elsewhere`"):
        plan(jmsqlSchema="elsewhere")


@pytest.mark.parametrize(("number", "words"), [("0000", "run `jmsql migrate`"), ("9999", "upgrade jmsql")])
def test_schema_of_another_version_names_the_remedy(
    plan: Callable[..., object], version: Callable[[str], None], number: str, words: str
) -> None:
    version(number)
    with pytest.raises(jmsql.JMSException, match=f"has version {number}, .*{words}"):
        plan()


@pytest.fixture
def as_guest(guest: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark connects as that role."""
    monkeypatch.setenv("JMSQL_URL", with_parameters(url, options=f"-crole={guest}"))


@pytest.mark.usefixtures("as_guest")
def test_role_without_rights_is_refused(plan: Callable[..., object]) -> None:
    with pytest.raises(jmsql.JMSSecurityException, match="the role lacks the privilege"):
        plan()


@pytest.mark.parametrize("plan", ["streaming read", "write"], indirect=True)
@pytest.mark.usefixtures("as_guest")
def test_role_that_may_not_administer_is_refused(plan: Callable[..., object], server: Server) -> None:
    server.rows("select jmsql.grant_access('queue://orders', 'spark_guest', 'send', 'receive')")
    with pytest.raises(jmsql.JMSSecurityException, match="'spark_guest' lacks the right to administer"):
        plan()


@pytest.mark.usefixtures("as_guest")
def test_role_that_may_browse_reads_a_batch(jmsql_factory: jmsql.ConnectionFactory, server: Server) -> None:
    with jmsql_factory.create_context() as context:
        for queue in ("orders", "parcels"):
            context.create_producer().send(context.create_queue(queue), "for the guest")
    server.rows("select jmsql.grant_access('queue://orders', 'spark_guest', 'browse')")
    reader = BatchReader(Options.read({"queue": "orders"}), SCHEMA)
    (partition,) = reader.partitions()
    assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == [{"text_body": "for the guest"}]
    with pytest.raises(jmsql.JMSSecurityException, match='"spark_guest" may not browse from the queue "parcels"'):
        BatchReader(Options.read({"queue": "parcels"}), SCHEMA).partitions()


def test_server_that_does_not_answer_is_told(plan: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://app@127.0.0.1:1/shop")
    with pytest.raises(jmsql.ResourceAllocationException, match="the server cannot be reached"):
        plan()


@pytest.mark.parametrize(
    ("options", "is_cancelled"), [({}, True), ({"queryTimeout": "0.1"}, True), ({"queryTimeout": "0"}, False)]
)
def test_statements_have_the_time_of_the_role_or_of_the_option(
    url: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], is_cancelled: bool
) -> None:
    default = "100ms" if options != {"queryTimeout": "0.1"} else "0"
    monkeypatch.setenv("JMSQL_URL", with_parameters(url, options=f"-cstatement_timeout={default} -cwork_mem=5MB"))
    database = Options.read({"queue": "orders", **options}).database

    def read() -> None:
        with database.connect("planning") as connection:
            connection.execute("select pg_sleep(0.3)")

    def read_in_a_task() -> None:
        with database.connect_arrow("reading") as connection:
            assert connection.execute("select current_setting('work_mem')").read_all().column(0).to_pylist() == ["5MB"]
            connection.execute("select pg_sleep(0.3)").read_all()

    for each in (read, read_in_a_task):
        if is_cancelled:
            with pytest.raises((jmsql.JMSException, OSError), match=r"statement.timeout"):
                each()
        else:
            each()
