//! What git does to an object file, call by call: created read-only, written, linked to its final name, the
//! first name removed; later the final name too.

use crate::e2e::accounts::ANN;
use crate::e2e::server::Server;
use crate::e2e::trees;
use crate::e2e::world::World;
use crate::nfs::{Client, at, mode};
use anyhow::{Context, Result, ensure};
use oncrpc::nfs3::*;

/// The scenario. At each of three places the home may catch up, or not.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let server = world.serve(&[])?;
    let (client, root) = world.client(&server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    for catch_up in 0..8u8 {
        one_object(&server, &client, &dir, catch_up)
            .with_context(|| format!("catching up at {catch_up:03b}"))?;
        server.sync().with_context(|| format!("after catching up at {catch_up:03b}"))?;
        let left = trees::names(&work)?;
        ensure!(left.is_empty(), "left at the home: {left:?}");
    }
    Ok(())
}

fn one_object(server: &Server, client: &Client, dir: &NfsFh3, catch_up: u8) -> Result<()> {
    let sync = |bit: u8| if catch_up & (1 << bit) != 0 { server.sync() } else { Ok(()) };
    let args = CreateArgs { at: at(dir, "tmp_obj"), how: CreateHow3::Guarded(mode(0o444)) };
    let made: CreateOk = client.call::<_, _, WccData>(procs::CREATE, &args)?;
    let file = made.obj.context("CREATE gives no handle")?;
    sync(0)?;
    client.write(&file, 0, b"content", StableHow::Unstable)?;
    client.commit(&file)?;
    sync(1)?;
    client.link(&file, at(dir, "object"))?;
    client.remove(dir, "tmp_obj")?;
    sync(2)?;
    ensure!(client.lookup(dir, "object")? == file, "the final name is another object");
    ensure!(client.read_all(&file)? == b"content");
    client.remove(dir, "object")
}
