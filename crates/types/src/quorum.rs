//! Quorum sizes, each under the name of its purpose. No other file computes one.

/// Returns the number of faulty replicas that `n` tolerate under partial synchrony: the largest f with n >= 3f + 1.
#[must_use]
pub const fn byzantine_faults(n: usize) -> usize {
    n.saturating_sub(1) / 3
}

/// Returns the number of faulty replicas that `n` tolerate under synchrony: the largest f with n >= 2f + 1.
#[must_use]
pub const fn synchronous_faults(n: usize) -> usize {
    n.saturating_sub(1) / 2
}

/// Returns ceil((n + f + 1) / 2). Any two such quorums share an honest replica. The size is 2f + 1 when n = 3f + 1. For
/// larger n, quorums of 2f + 1 would not intersect.
#[must_use]
pub const fn byzantine(n: usize, f: usize) -> usize {
    n.saturating_add(f).saturating_add(2) / 2
}

/// Returns f + 1: at least one replica of such a quorum is honest.
#[must_use]
pub const fn weak(f: usize) -> usize {
    f.saturating_add(1)
}

/// Returns n - f: the largest number of answers that a replica can wait for, because f replicas may never answer.
#[must_use]
pub const fn all_honest(n: usize, f: usize) -> usize {
    n.saturating_sub(f)
}

/// Returns n - f - 1: the same for a replica that waits for others only, and is honest itself.
#[must_use]
pub const fn honest_others(n: usize, f: usize) -> usize {
    all_honest(n, f).saturating_sub(1)
}

/// Returns the size of [`byzantine`] without one replica, whose vote is another message: that of a leader is its proposal.
#[must_use]
pub const fn byzantine_backups(n: usize, f: usize) -> usize {
    byzantine(n, f).saturating_sub(1)
}

/// Returns floor(3n / 4) + 1, q_R of Opt Sync: so many votes decide at once. Two such quorums share an honest replica, and each
/// contains an honest one, among n >= 2f + 1.
#[must_use]
pub const fn responsive(n: usize) -> usize {
    (n.saturating_mul(3) / 4).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all subsets of n replicas with exactly `size` replicas, as bit masks.
    fn subsets(n: usize, size: usize) -> Vec<u32> {
        (0u32..1 << n).filter(|set| usize::try_from(set.count_ones()).unwrap() == size).collect()
    }

    /// Checks by brute force: any two quorums share more than f replicas, hence an honest one. Quorums that are
    /// smaller by one do not. The n - f honest replicas can form a quorum.
    #[test]
    fn byzantine_quorums_intersect_in_an_honest_replica() {
        for n in 1..=13usize {
            for f in 0..=byzantine_faults(n) {
                let smallest = |size: usize| {
                    let sets = subsets(n, size);
                    // By symmetry the first set stands for all of its size.
                    let first = sets[0];
                    sets.iter().map(|set| (first & set).count_ones()).min().unwrap()
                };
                let size = byzantine(n, f);
                assert!(smallest(size) > u32::try_from(f).unwrap(), "n={n} f={f} q={size}");
                assert!(size <= all_honest(n, f), "n={n} f={f}: not reachable");
                if size > 1 {
                    assert!(
                        smallest(size - 1) <= u32::try_from(f).unwrap(),
                        "n={n} f={f}: larger than needed"
                    );
                }
            }
        }
    }

    #[test]
    fn every_weak_quorum_has_an_honest_replica() {
        for f in 0..=4usize {
            let faulty = (1u32 << f) - 1;
            for set in subsets(3 * f + 1, weak(f)) {
                assert_ne!(set & !faulty, 0);
            }
        }
    }

    /// Numbers in figures, at sizes where few of them are equal. No size is another one in disguise.
    #[test]
    fn sizes_differ_where_n_is_not_the_smallest_for_f() {
        let sizes = |n, f| {
            let of_votes = [weak(f), byzantine(n, f), all_honest(n, f), responsive(n)];
            (of_votes, [byzantine_backups(n, f), honest_others(n, f)])
        };
        assert_eq!(sizes(4, 1), ([2, 3, 3, 4], [2, 2]));
        assert_eq!(sizes(6, 1), ([2, 4, 5, 5], [3, 4]));
        assert_eq!(sizes(9, 2), ([3, 6, 7, 7], [5, 6]));
        assert_eq!(sizes(6, 2), ([3, 5, 4, 5], [4, 3]));
        assert_eq!(sizes(8, 3), ([4, 6, 5, 7], [5, 4]));
        assert_eq!(sizes(1, 0), ([1, 1, 1, 1], [0, 0]));
    }

    #[test]
    fn sizes_are_the_usual_ones_at_the_smallest_n() {
        for f in 0..40 {
            assert_eq!(byzantine(3 * f + 1, f), 2 * f + 1);
            assert_eq!(byzantine_faults(3 * f + 1), f);
            assert_eq!(synchronous_faults(2 * f + 1), f);
        }
    }
}
