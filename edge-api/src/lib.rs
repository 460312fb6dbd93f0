//! Worker.
