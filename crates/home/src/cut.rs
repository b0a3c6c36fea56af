//! Where content is cut: at places that depend on the bytes just before them and on nothing else, so that the same bytes are
//! cut at the same places wherever they stand.

/// Bytes before a place that decide.
pub const SPAN: usize = 64;

/// A random number for each byte.
const GEAR: [u64; 256] = {
    let (mut table, mut i, mut state) = ([0; 256], 0, 0x7472_656c_6c69_7331_u64);
    while i < table.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[i] = z ^ (z >> 31);
        i += 1;
    }
    table
};

/// The first place from `from` on, and not before [`SPAN`], where one of 2^`bits` places is. The end of the data is none.
pub fn next(data: &[u8], from: usize, bits: u32) -> Option<usize> {
    let limit = u64::MAX >> bits;
    let start = from.max(SPAN) - SPAN;
    let (before, rest) = data.get(start..)?.split_at_checked(SPAN - 1)?;
    let step = |hash: u64, byte: &u8| (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
    // What was before has left the hash after SPAN bytes.
    let mut hash = before.iter().fold(0, step);
    let found = rest.iter().position(|byte| {
        hash = step(hash, byte);
        hash <= limit
    });
    found.map(|i| start + SPAN + i).filter(|at| *at < data.len())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bytes that nothing repeats.
    pub fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn all(data: &[u8], bits: u32) -> Vec<usize> {
        let mut at = 0;
        std::iter::from_fn(|| {
            let found = next(data, at, bits)?;
            at = found + 1;
            Some(found)
        })
        .collect()
    }

    #[test]
    fn places_depend_on_the_bytes_before_them_alone() {
        let data = noise(1 << 20, 1);
        let cuts = all(&data, 12);
        assert!((180..330).contains(&cuts.len()), "one of 4,096 places: {}", cuts.len());
        let shifted = [&noise(1000, 2), &data[5000..]].concat();
        let moved: Vec<usize> = cuts.iter().filter(|at| **at >= 5000 + SPAN).map(|at| at - 4000).collect();
        let found: Vec<usize> = all(&shifted, 12).into_iter().filter(|at| *at >= 1000 + SPAN).collect();
        assert_eq!(found, moved);
        let from = cuts[7];
        assert_eq!((next(&data, from, 12), next(&data, from + 1, 12)), (Some(from), Some(cuts[8])));
    }

    #[test]
    fn short_content_has_no_places() {
        for len in [0, 1, SPAN - 1, SPAN] {
            assert_eq!(next(&vec![7; len], 0, 0), None);
        }
        assert_eq!(next(&[7; SPAN + 1], 0, 0), Some(SPAN));
        assert_eq!(next(&[7; SPAN + 1], SPAN + 1, 0), None);
    }

    /// Both ends have to find the same places.
    #[test]
    fn places_are_golden() {
        assert_eq!(all(&noise(1 << 16, 3), 13), GOLDEN);
    }

    /// The places in the test above.
    const GOLDEN: &[usize] = &[13157, 23671, 46665, 50860, 53426, 53984, 60444];
}
