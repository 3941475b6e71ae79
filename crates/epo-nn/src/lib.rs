//! Multi-layer perceptrons, policies, Adam, normaliser, Fisher-vector product, conjugate gradient.
