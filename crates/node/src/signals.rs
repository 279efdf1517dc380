//! Signals that request a stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Calls `act` for each stop request (Ctrl-C, `kill`), on one thread for each signal. From then on these signals have no other
/// effect, also in the first process of a container.
///
/// # Errors
/// Fails when the system refuses.
pub fn on_stop(act: impl FnMut() + Clone + Send + 'static) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let (mut near, far) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, far)?;
        let mut act = act.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut byte = [0];
            while near.read_exact(&mut byte).is_ok() {
                act();
            }
        })?;
    }
    Ok(())
}

/// The stop request of the process, for a loop that checks it. Before [`StopRequest::begin`], and at the second signal, the
/// process ends at once with exit code 0.
#[derive(Clone, Debug)]
pub struct StopRequest {
    signal: Arc<AtomicUsize>,
    at_once: Arc<AtomicBool>,
}

impl StopRequest {
    /// Registers for the signals.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn watch() -> io::Result<Self> {
        let watch = Self { signal: Arc::default(), at_once: Arc::new(AtomicBool::new(true)) };
        for (signal, number) in [(SIGINT, 1), (SIGTERM, 2)] {
            flag::register_conditional_shutdown(signal, 0, Arc::clone(&watch.at_once))?;
            flag::register(signal, Arc::clone(&watch.at_once))?;
            flag::register_usize(signal, Arc::clone(&watch.signal), number)?;
        }
        Ok(watch)
    }

    /// Declares that a loop checks the request from now on.
    pub fn begin(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Returns the name of the signal that has arrived, if any.
    #[must_use]
    pub fn signal(&self) -> Option<&'static str> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("SIGINT"),
            _ => Some("SIGTERM"),
        }
    }
}
