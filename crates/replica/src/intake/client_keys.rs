//! Client keys in prepared form. A registration costs as much as a signature check, so keys are remembered, in two
//! generations: when the younger is full the older is forgotten.

use quorate_crypto::{Scheme, VerifyKey};
use quorate_types::PublicKey;
use quorate_types::limits::CLIENT_KEYS_REMEMBERED_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module. `None` stands for bytes that are no key.
#[derive(Default)]
pub(crate) struct ClientKeys {
    young: BTreeMap<PublicKey, Option<Arc<VerifyKey>>>,
    old: BTreeMap<PublicKey, Option<Arc<VerifyKey>>>,
}

impl ClientKeys {
    /// Returns the key in prepared form; `None` when the bytes are no key.
    pub(crate) fn get(&mut self, scheme: Scheme, public: PublicKey) -> Option<Arc<VerifyKey>> {
        if let Some(known) = self.young.get(&public) {
            return known.clone();
        }
        let key = match self.old.remove(&public) {
            Some(known) => known,
            None => VerifyKey::register(scheme, public).ok().map(Arc::new),
        };
        if self.young.len() >= CLIENT_KEYS_REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(public, key.clone());
        key
    }
}
