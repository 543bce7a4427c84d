from __future__ import annotations

from jmsql.spark.archiving.target import Target


def test_directory_of_an_object_store_has_one_lock_however_it_is_named() -> None:
    names = ("s3://b/a?region=eu-central-1", "s3a://b/a/?region=eu-central-1", "s3://b/a/?scheme=http&region=us-east-1")
    assert {Target(name).lock_name for name in names} == {"s3://b/a"}


def test_directories_of_two_object_stores_have_two_locks() -> None:
    names = [f"s3://b/a/?region=us-east-1&endpoint_override={host}" for host in ("one:9000", "two:9000")]
    assert len({Target(name).lock_name for name in names}) == 2
