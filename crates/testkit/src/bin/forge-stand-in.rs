//! The stand-in for a forge as a program: `forge-stand-in BARE_REPOSITORY [PORT] [CI_COMMAND]`, for
//! trying pull requests by hand.

#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::path::PathBuf;

use mainstem_testkit::forge::{ForgeStandIn, REPOSITORY};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(bare) = args.next().map(PathBuf::from) else {
        println!("usage: forge-stand-in BARE_REPOSITORY [PORT] [CI_COMMAND]");
        return Ok(());
    };
    let port = args.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let forge = ForgeStandIn::start_at(&bare, port, 100)?;
    if let Some(command) = args.next() {
        forge.ci(&command);
    }
    println!("listening on {} for {REPOSITORY} in {}", forge.url(), bare.display());
    loop {
        std::thread::park();
    }
}
