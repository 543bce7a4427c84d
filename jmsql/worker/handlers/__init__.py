"""The handlers of an application, and how a process calls them."""
