//! Deploy.
