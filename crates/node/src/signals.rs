//! Being asked to stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::thread;

/// Calls `act`, on a thread of its own, each time the process is asked to stop (Ctrl-C, `kill`). From then on
/// these signals do nothing else.
///
/// # Errors
/// When the system refuses.
pub fn on_stop(mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let (mut near, far) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGINT, far.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGTERM, far)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut byte = [0];
        while near.read_exact(&mut byte).is_ok() {
            act();
        }
    })?;
    Ok(())
}
