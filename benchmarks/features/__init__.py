"""What features cost, beside the same without them."""
