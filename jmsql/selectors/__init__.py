"""Message selectors: from text to SQL, and their meaning in plain Python.

Pure: no SQL is executed here, and nothing is read or written.
"""

from jmsql.selectors.selector import Selector
from jmsql.selectors.selector_sql import SelectorSQL

__all__ = ["Selector", "SelectorSQL"]
