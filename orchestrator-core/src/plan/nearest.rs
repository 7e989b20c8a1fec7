//! Finds the known word that was probably meant by an unknown one.

/// Finds nearest words until it has compared a bounded number of characters.
///
/// A plan with many thousand wrong names would otherwise take the square of that.
#[derive(Debug)]
pub(crate) struct Nearest {
    cells_left: usize,
}

impl Default for Nearest {
    fn default() -> Self {
        Self { cells_left: 20_000_000 }
    }
}

impl Nearest {
    /// The first of the known words that takes the fewest edits to come from `word`, without regard
    /// to case; none when even that takes more than a third of its letters.
    pub(crate) fn find<'a>(
        &mut self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let word = letters(word);
        // In a word of one letter, one edit leaves nothing of it.
        let mut limit = (word.len() / 3).max(1).min(word.len().saturating_sub(1)) + 1;
        let mut nearest = None;
        for candidate in known {
            let too_far = word.len().abs_diff(candidate.chars().count()) >= limit;
            let cost = if too_far { candidate.len() } else { word.len() * candidate.len() };
            let Some(left) = self.cells_left.checked_sub(cost + 1) else { break };
            self.cells_left = left;
            if too_far {
                continue;
            }
            let edits = edits(&word, &letters(candidate));
            if edits < limit {
                limit = edits;
                nearest = Some(candidate);
            }
        }
        nearest
    }
}

fn letters(word: &str) -> Vec<char> {
    word.chars().flat_map(char::to_lowercase).collect()
}

/// How many letters are to be put in, taken out, replaced, or exchanged with their neighbour.
fn edits(one: &[char], two: &[char]) -> usize {
    let mut before_last = vec![0; two.len() + 1];
    let mut last: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = Vec::with_capacity(two.len() + 1);
        row.push(i + 1);
        for (j, b) in two.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && one[i - 1] == *b && two[j - 1] == *a;
            if swapped {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_with_the_fewest_edits_is_nearest_and_a_far_one_is_none() {
        let known = ["depends_on", "verify", "role", "prompt_template"];
        for (word, nearest) in [
            ("dependsOn", Some("depends_on")),
            ("depend_on", Some("depends_on")),
            ("verfiy", Some("verify")),
            ("rloe", Some("role")),
            ("Verify", Some("verify")),
            ("rôle", Some("role")),
            ("colour", None),
            ("", None),
            ("r", None),
        ] {
            assert_eq!(Nearest::default().find(word, known), nearest, "{word}");
        }
    }

    #[test]
    fn the_search_ends_when_enough_was_compared() {
        let mut nearest = Nearest { cells_left: 10 };
        assert_eq!(nearest.find("abcdef", ["abcdeg"]), None);
    }
}
