//! The replicas of one epoch.

use crate::codec::{DecodeError, Reader, Wire};
use crate::ids::{ClusterId, Epoch, ProtocolId, PublicKey, ReplicaId};
use crate::limits::REPLICAS_MAX;
use crate::quorum;
use crate::statement::Domain;
use std::fmt;

/// One replica's public keys. One signs statements and nothing else, the other is the TLS key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The key that signs statements.
    pub sign: PublicKey,
    /// The key that the other side of a link must prove.
    pub link: PublicKey,
}

crate::wire_struct!(Member { sign, link });

/// The replicas of one epoch, with their keys. Another epoch may have another n.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committee {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The protocol that the cluster runs.
    pub protocol: ProtocolId,
    /// The epoch of this committee.
    pub epoch: Epoch,
    /// The number of faulty replicas tolerated.
    pub f: usize,
    /// The replicas, by id.
    pub members: Vec<Member>,
}

impl Committee {
    /// Returns the number of replicas.
    #[must_use]
    pub fn n(&self) -> usize {
        self.members.len()
    }

    /// Returns the replica's keys; `None` for an id that is not a member.
    #[must_use]
    pub fn member(&self, id: ReplicaId) -> Option<&Member> {
        self.members.get(id.index())
    }

    /// Whether the id is a member.
    #[must_use]
    pub fn contains(&self, id: ReplicaId) -> bool {
        id.index() < self.n()
    }

    /// Returns all ids in order.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..u16::try_from(self.n()).unwrap_or(u16::MAX)).map(ReplicaId)
    }

    /// Returns all ids but one.
    pub fn others(&self, me: ReplicaId) -> impl Iterator<Item = ReplicaId> + use<> {
        self.ids().filter(move |id| *id != me)
    }

    /// Returns the replica at `number mod n`, which is the rule of round-robin leaders.
    #[must_use]
    pub fn rotate(&self, number: u64) -> ReplicaId {
        let n = u64::try_from(self.n()).unwrap_or(1).max(1);
        ReplicaId(u16::try_from(number % n).unwrap_or(0))
    }

    /// Returns [`quorum::byzantine`] for this committee.
    #[must_use]
    pub fn quorum(&self) -> usize {
        quorum::byzantine(self.n(), self.f)
    }

    /// Returns [`quorum::weak`] for this committee.
    #[must_use]
    pub fn weak(&self) -> usize {
        quorum::weak(self.f)
    }

    /// Returns [`quorum::all_honest`] for this committee.
    #[must_use]
    pub fn all_honest(&self) -> usize {
        quorum::all_honest(self.n(), self.f)
    }

    /// Returns [`quorum::honest_others`] for this committee.
    #[must_use]
    pub fn honest_others(&self) -> usize {
        quorum::honest_others(self.n(), self.f)
    }

    /// Returns [`quorum::byzantine_backups`] for this committee.
    #[must_use]
    pub fn quorum_of_backups(&self) -> usize {
        quorum::byzantine_backups(self.n(), self.f)
    }

    /// Returns [`quorum::responsive`] for this committee.
    #[must_use]
    pub fn responsive(&self) -> usize {
        quorum::responsive(self.n())
    }

    /// Returns the domain in which this committee's statements are valid.
    #[must_use]
    pub fn domain(&self) -> Domain {
        Domain { cluster: self.cluster, protocol: self.protocol, epoch: self.epoch }
    }
}

const WORDS: usize = REPLICAS_MAX / 64;

/// A set of replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaSet {
    words: [u64; WORDS],
}

impl ReplicaSet {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    fn place(id: ReplicaId) -> (usize, u64) {
        (id.index() / 64, 1u64 << (id.0 % 64))
    }

    /// Adds a replica. Returns false when the set has it already, or when no committee can have it.
    pub fn insert(&mut self, id: ReplicaId) -> bool {
        let (index, bit) = Self::place(id);
        match self.words.get_mut(index) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    /// Removes a replica. Returns false when it was not in the set.
    pub fn remove(&mut self, id: ReplicaId) -> bool {
        let was = self.contains(id);
        let (index, bit) = Self::place(id);
        if let Some(word) = self.words.get_mut(index) {
            *word &= !bit;
        }
        was
    }

    /// Whether a replica is in the set.
    #[must_use]
    pub fn contains(&self, id: ReplicaId) -> bool {
        let (index, bit) = Self::place(id);
        self.words.get(index).is_some_and(|word| word & bit != 0)
    }

    /// Returns the number of replicas in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or(0)).sum()
    }

    /// Whether the set has no replica.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Returns the replicas of the set in order.
    pub fn iter(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let set = *self;
        (0..u16::try_from(REPLICAS_MAX).unwrap_or(u16::MAX))
            .map(ReplicaId)
            .filter(move |id| set.contains(*id))
    }
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The encoding is the number of 64-bit words up to the last non-zero one, and these words.
impl Wire for ReplicaSet {
    fn encode(&self, out: &mut Vec<u8>) {
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last.saturating_add(1));
        out.push(u8::try_from(used).unwrap_or(0));
        for word in self.words.iter().take(used) {
            word.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let used = usize::from(reader.u8()?);
        if used > WORDS {
            return Err(DecodeError::Value("replica set"));
        }
        let mut words = [0; WORDS];
        let mut last = 1;
        for word in words.iter_mut().take(used) {
            *word = reader.u64()?;
            last = *word;
        }
        // A last word of zero would be a second encoding of the same set.
        if last == 0 { Err(DecodeError::Value("replica set")) } else { Ok(Self { words }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_set_counts_each_replica_once() {
        let mut set = ReplicaSet::EMPTY;
        assert!(set.insert(ReplicaId(3)));
        assert!(!set.insert(ReplicaId(3)));
        assert!(set.insert(ReplicaId(200)));
        assert!(!set.insert(ReplicaId(9_999)), "no committee is that large");
        assert_eq!(set.len(), 2);
        assert_eq!(set.iter().collect::<Vec<_>>(), [ReplicaId(3), ReplicaId(200)]);
        assert!(set.remove(ReplicaId(3)) && !set.remove(ReplicaId(3)));
    }

    #[test]
    fn replica_set_has_one_encoding() {
        for ids in [vec![], vec![0], vec![3, 64], vec![255]] {
            let set: ReplicaSet = ids.into_iter().map(ReplicaId).collect();
            assert_eq!(ReplicaSet::from_bytes(&set.to_bytes()), Ok(set));
        }
        assert_eq!(
            ReplicaSet::from_bytes(&[1, 0, 0, 0, 0, 0, 0, 0, 0]),
            Err(DecodeError::Value("replica set"))
        );
        assert_eq!(ReplicaSet::from_bytes(&[5]), Err(DecodeError::Value("replica set")));
    }
}
