//! The agents that this program carries, one for each kind of machine; `build.rs` builds them.

use home::AgentBinaries;

include!(concat!(env!("OUT_DIR"), "/agents.rs"));

/// All of them, ready to be sent. Hashes them, so call it once.
pub fn binaries() -> AgentBinaries {
    let add = |all: AgentBinaries, (arch, program): &(&str, &'static [u8])| all.with_linux(arch, *program);
    AGENTS.iter().fold(AgentBinaries::none(), add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_for_this_machine_is_carried() {
        let own = format!("linux-{}", std::env::consts::ARCH);
        assert!(binaries().platforms().any(|p| p == own));
        assert!(AGENTS.iter().all(|(_, program)| program.starts_with(b"\x7fELF")));
    }
}
