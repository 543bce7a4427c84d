"""Counts the words of files: ``python -m examples.rq_words.count README.md``."""

import sys

import jmsql
from examples.rq_words.words import count_words

paths = sys.argv[1:]
with jmsql.ConnectionFactory().create_connection() as connection:
    for path, job in zip(paths, count_words.send_many(connection, paths), strict=True):
        try:
            print(path, jmsql.result(connection, job).get(timeout=60))
        except jmsql.JobFailed as error:
            print(path, error)
