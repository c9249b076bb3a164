//! Random bytes and damage that can be repeated; used by the end-to-end tests, too.

/// A small generator (xorshift), so that a failing round can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Damages a body: cut, flip a bit, overwrite with great numbers, double a byte, or all random.
    pub(crate) fn damage(&mut self, body: &mut Vec<u8>) {
        let at = self.below(body.len());
        match self.below(6) {
            0 => body.truncate(at),
            1 if !body.is_empty() => body[at] ^= 1 << self.below(8),
            2 => body.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
            3 => {
                let great = [0x7f, 0xff, 0xff, 0xff];
                body.iter_mut().skip(at).zip(great).for_each(|(byte, new)| *byte = new);
            }
            4 if !body.is_empty() => body.insert(at, body[at]),
            _ => {
                let length = self.below(200);
                *body = (0..length).map(|_| self.next() as u8).collect();
            }
        }
    }
}
