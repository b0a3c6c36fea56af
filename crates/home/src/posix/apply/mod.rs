//! Changes.
pub mod staging;
use super::Posix;
use super::sys::Sys;
use crate::error::{ErrorKind, Result};
use crate::{Outcome, Placed};
/// Executes operations in order.
pub(super) fn apply<S: Sys>(_: &Posix<S>, _: Vec<Placed>) -> Result<Vec<Outcome>> {
    Err(ErrorKind::Unsupported.into())
}
