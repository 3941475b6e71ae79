//! The Safety-Gymnasium navigation and velocity tasks, seed-exact.
