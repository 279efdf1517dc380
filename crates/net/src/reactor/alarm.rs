//! An alarm that ends a wait on time. The system's poll counts whole milliseconds, and emulated delays may be shorter.

#[cfg(target_os = "linux")]
mod timer {
    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::fd::{AsRawFd, OwnedFd};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::io;
    use std::time::Duration;

    /// A timer of the kernel among the sockets of a poll.
    #[derive(Debug)]
    pub(in crate::reactor) struct Alarm(OwnedFd);

    impl Alarm {
        /// Returns an alarm that wakes a poll by an event with this token.
        pub(in crate::reactor) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Self(timer))
        }

        /// Rings once after `wait`, in place of an earlier time.
        pub(in crate::reactor) fn set(&self, wait: Duration) -> io::Result<()> {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = Timespec::try_from(wait).unwrap_or(never);
            let spec = Itimerspec { it_interval: never, it_value: at };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)?;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use mio::{Registry, Token};
    use std::io;
    use std::time::Duration;

    /// Other systems have no such timer: a wait ends up to a millisecond late.
    #[derive(Debug)]
    pub(in crate::reactor) struct Alarm;

    impl Alarm {
        pub(in crate::reactor) fn new(_: &Registry, _: Token) -> io::Result<Self> {
            Ok(Self)
        }

        pub(in crate::reactor) fn set(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }
}

pub(super) use timer::Alarm;
