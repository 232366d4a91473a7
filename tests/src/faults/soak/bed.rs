//! What a fault can use.

use std::os::unix::net::UnixStream;

use crate::Gpu;
use crate::dice::Dice;
use crate::faults::stage::Stage;

/// The two programs under a server, and what faults leave behind.
pub struct Bed<'a> {
    pub stage: Stage,
    pub gpu: &'a Gpu,
    pub dice: Dice,
    /// Connections that were left open.
    pub open: Vec<UnixStream>,
}
