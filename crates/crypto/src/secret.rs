//! A value that is neither printed nor left behind in memory.

use std::fmt;
use zeroize::Zeroize;

/// Holds a secret: `Debug` hides it, dropping wipes it.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes the value in.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. The name is meant to be searched for.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
