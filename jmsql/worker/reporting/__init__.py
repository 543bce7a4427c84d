"""What a worker tells of itself: reports, metrics and logs."""
