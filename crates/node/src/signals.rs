//! Being asked to stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::thread;

/// Calls `act` each time the process is asked to stop (Ctrl-C, `kill`), on a thread of its own for each signal, with the
/// name of the signal. From then on these signals do nothing else, also in the first process of a container.
///
/// # Errors
/// When the system refuses.
pub fn on_signal(act: impl FnMut(&'static str) + Clone + Send + 'static) -> io::Result<()> {
    for (signal, name) in [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")] {
        let (mut near, far) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, far)?;
        let mut act = act.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut byte = [0];
            while near.read_exact(&mut byte).is_ok() {
                act(name);
            }
        })?;
    }
    Ok(())
}

/// As [`on_signal`], where it does not matter which signal it was.
///
/// # Errors
/// When the system refuses.
pub fn on_stop(mut act: impl FnMut() + Clone + Send + 'static) -> io::Result<()> {
    on_signal(move |_| act())
}
