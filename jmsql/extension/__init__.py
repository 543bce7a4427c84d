"""The core's interface for packages that read, claim and send messages by SQL of their own, such as `jmsql.spark`.

Such an extension imports the public names and these modules alone, so that it could ship by itself. Unlike the public
names, they may change with a minor release. All other modules are the core's own.
"""
