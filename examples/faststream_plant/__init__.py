"""An application for FastStream, translated."""
