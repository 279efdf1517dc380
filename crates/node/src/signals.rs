//! Being asked to stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Calls `act` each time the process is asked to stop (Ctrl-C, `kill`), on a thread of its own for each signal. From then
/// on these signals do nothing else, also in the first process of a container.
///
/// # Errors
/// When the system refuses.
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

/// Whether the process has been asked to stop, without a thread: for a loop that looks. Until [`StopRequest::begin`], and from
/// the second signal on, the process ends at once with exit code 0.
#[derive(Clone, Debug)]
pub struct StopRequest {
    signal: Arc<AtomicUsize>,
    at_once: Arc<AtomicBool>,
}

impl StopRequest {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn watch() -> io::Result<Self> {
        let watch = Self { signal: Arc::default(), at_once: Arc::new(AtomicBool::new(true)) };
        for (signal, number) in [(SIGINT, 1), (SIGTERM, 2)] {
            flag::register_conditional_shutdown(signal, 0, Arc::clone(&watch.at_once))?;
            flag::register(signal, Arc::clone(&watch.at_once))?;
            flag::register_usize(signal, Arc::clone(&watch.signal), number)?;
        }
        Ok(watch)
    }

    /// From now on somebody looks.
    pub fn begin(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// The name of the signal, once there was one.
    #[must_use]
    pub fn signal(&self) -> Option<&'static str> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("SIGINT"),
            _ => Some("SIGTERM"),
        }
    }
}
