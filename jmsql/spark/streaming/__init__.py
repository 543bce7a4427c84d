"""Reading messages as streams: a queue or a subscription, which it consumes, or the history, which it follows."""
