//! Pinning of a run's processes to processor cores, so that the load generator takes none of the cluster's time. A process
//! inherits the cores of the thread that starts it.

use std::io;

/// The processes to pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// The replicas: all cores but the last one.
    Cluster,
    /// The load generator: the last core.
    Load,
}

/// This thread and its children are pinned until this value is dropped.
#[cfg(target_os = "linux")]
pub(crate) struct Pinned(rustix::thread::CpuSet);

#[cfg(target_os = "linux")]
impl Pinned {
    /// Pins this thread to the cores of a group, among those that this process may use.
    pub(crate) fn to(group: Group) -> io::Result<Self> {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let all = sched_getaffinity(None)?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
        let chosen = split(&cores, group).ok_or_else(|| io::Error::other("pin needs two processor cores"))?;
        let mut set = CpuSet::new();
        chosen.iter().for_each(|core| set.set(*core));
        sched_setaffinity(None, &set)?;
        Ok(Self(all))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pinned {
    fn drop(&mut self) {
        // A thread that stays pinned starts the rest of the study on fewer cores. The system allows what it allowed before.
        let _ = rustix::thread::sched_setaffinity(None, &self.0);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) struct Pinned;

#[cfg(not(target_os = "linux"))]
impl Pinned {
    pub(crate) fn to(_: Group) -> io::Result<Self> {
        Err(io::Error::other("pin needs Linux"))
    }
}

/// Returns the cores of a group; `None` for fewer than two cores.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux pins"))]
fn split(cores: &[usize], group: Group) -> Option<&[usize]> {
    let (last, others) = cores.split_last().filter(|(_, others)| !others.is_empty())?;
    match group {
        Group::Cluster => Some(others),
        Group::Load => Some(std::slice::from_ref(last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_no_core_and_leave_none() {
        let cores = [0, 2, 3];
        assert_eq!(split(&cores, Group::Cluster), Some(&[0, 2][..]));
        assert_eq!(split(&cores, Group::Load), Some(&[3][..]));
        assert_eq!(split(&cores[..1], Group::Load), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pin_ends_with_its_value() {
        use rustix::thread::sched_getaffinity;
        let before = sched_getaffinity(None).unwrap();
        let pinned = Pinned::to(Group::Load);
        if before.count() >= 2 {
            let pinned = pinned.unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            drop(pinned);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
