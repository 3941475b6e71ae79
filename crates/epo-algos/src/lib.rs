//! GAE, surrogates and one file per algorithm.
