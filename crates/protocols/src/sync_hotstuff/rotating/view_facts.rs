//! Facts about views: the statements of each, whether silence in it proves anything, and the certificates that still matter.
//!
//! Views last less than 2 Δ, so the waits of many views run at the same time. A view is kept until its block is settled or no
//! wait is for it.

use super::super::statements::VOTE;
use super::header::Header;
use quorate_consensus::{Certificate, Signed};
use quorate_types::{BlockId, View};
use std::collections::BTreeMap;

/// Progress of the own vote in a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum OwnVote {
    /// There is none, or its wait is over.
    #[default]
    None,
    /// It is on its way to the disk.
    Cast,
    /// All have it, or the header without it. Its 2 Δ run or are over.
    Waits,
}

/// Facts about one view.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewFacts {
    /// First header of its leader: the only one that is ever voted for.
    pub(super) first: Option<(BlockId, Signed<Header>)>,
    /// Whether silence proves nothing: its leader has equivocated, or f + 1 replicas blame it. No timer commits its block
    /// (R11).
    pub(super) is_broken: bool,
    /// Whether this replica has broadcast two statements of its leader.
    pub(super) is_shown: bool,
    /// Own vote for its first header.
    pub(super) vote: OwnVote,
    /// Whether the first header was sent to all, with the own vote or without one.
    pub(super) is_out: bool,
}

/// The certificate of a block, and whether this replica has shown it to all.
#[derive(Clone, Debug)]
struct KeptCertificate {
    certificate: Certificate,
    is_shown: bool,
}

/// Certificates by view and block. Two of one view show that its leader equivocates, and each block may be extended.
#[derive(Clone, Debug)]
pub(super) struct ViewCertificates {
    kept: BTreeMap<(View, BlockId), KeptCertificate>,
    /// First certificate of the highest view.
    highest: Certificate,
}

impl ViewCertificates {
    pub(super) fn new() -> Self {
        let genesis = Certificate::genesis(VOTE);
        let kept = KeptCertificate { certificate: genesis.clone(), is_shown: true };
        Self { kept: BTreeMap::from([((View::ZERO, BlockId::ZERO), kept)]), highest: genesis }
    }

    /// Keeps a certificate; true when it is new.
    pub(super) fn add(&mut self, certificate: &Certificate) -> bool {
        let place = (certificate.view(), certificate.block());
        if self.kept.contains_key(&place) {
            return false;
        }
        self.kept.insert(place, KeptCertificate { certificate: certificate.clone(), is_shown: false });
        // R2. §11, 1: the rank of a certificate is its view.
        if certificate.view() > self.highest.view() {
            self.highest = certificate.clone();
        }
        true
    }

    /// Returns the highest certificate.
    pub(super) fn highest(&self) -> &Certificate {
        &self.highest
    }

    /// Returns the certificate of a block.
    pub(super) fn get(&self, view: View, block: BlockId) -> Option<&Certificate> {
        self.kept.get(&(view, block)).map(|kept| &kept.certificate)
    }

    /// Returns the certificates of a view.
    pub(super) fn of_view(&self, view: View) -> impl Iterator<Item = &Certificate> {
        let from = self.kept.range((view, BlockId::ZERO)..);
        from.take_while(move |((of, _), _)| *of == view).map(|(_, kept)| &kept.certificate)
    }

    /// Returns all certificates, highest view first.
    pub(super) fn down(&self) -> impl Iterator<Item = &Certificate> {
        self.kept.values().rev().map(|kept| &kept.certificate)
    }

    /// Whether a certificate must be shown to all; true once.
    pub(super) fn must_show(&mut self, certificate: &Certificate) -> bool {
        let kept = self.kept.get_mut(&(certificate.view(), certificate.block()));
        kept.is_some_and(|kept| !std::mem::replace(&mut kept.is_shown, true))
    }

    /// Whether all have the certificate of a block, or will have it.
    pub(super) fn is_shown(&self, view: View, block: BlockId) -> bool {
        self.kept.get(&(view, block)).is_some_and(|kept| kept.is_shown)
    }

    /// Forgets certificates of views that do not matter, except those of the highest one.
    pub(super) fn retain(&mut self, matters: impl Fn(View) -> bool) {
        let highest = self.highest.view();
        self.kept.retain(|(view, _), _| *view == highest || matters(*view));
    }
}
