//! Chance that is the same everywhere.

/// A source of chance: bytes as long as there are any, then numbers after a seed (splitmix64); the
/// same everywhere.
#[derive(Debug, Clone)]
pub struct Dice {
    pub(super) seed: u64,
    state: u64,
    bytes: Vec<u8>,
}

impl Dice {
    /// Numbers after this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, state: seed, bytes: Vec::new() }
    }

    /// These bytes in order, for a fuzzer that looks for the worst.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.iter().rev().copied().collect(), ..Self::new(0) }
    }

    /// Numbers that depend on the seed and on this place only, so that what is done there stays the
    /// same when something before it is left out; bytes go on where they are.
    pub(super) const fn at(&mut self, place: u64) {
        if self.bytes.is_empty() {
            self.state = self.seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        if let Some(byte) = self.bytes.pop() {
            return u64::from(byte) << 56;
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        let number = self.roll() >> 32;
        u32::try_from((number * u64::from(limit)) >> 32).unwrap_or(0)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }
}
