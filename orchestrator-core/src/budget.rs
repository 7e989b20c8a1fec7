//! What may be spent, and by whom: the rule by which a stage gets its part of a budget.

use crate::money::Usd;

/// The smallest share of a budget that a stage is started with, when less than its cap is left: one
/// that can get nowhere would only waste it.
const SHARE_MIN: u64 = 16;

/// What a stage with this cap may spend out of a budget of which so much is gone, spent or set aside:
/// its cap, or what is left when that is less; `None` when too little is left to start it.
pub(crate) fn allowance(budget: Option<Usd>, gone: Usd, cap: Usd) -> Option<Usd> {
    let Some(budget) = budget.filter(|_| cap > Usd::ZERO) else { return Some(cap) };
    let left = budget.minus(gone);
    let least = cap.min(Usd(budget.0 / SHARE_MIN));
    (left > Usd::ZERO && left >= least).then(|| cap.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_a_stage_gets_its_cap_or_what_is_left_and_nothing_when_that_is_too_little() {
        let of = |budget, gone, cap| allowance(Some(Usd(budget)), Usd(gone), Usd(cap));
        assert_eq!(allowance(None, Usd(9), Usd(5)), Some(Usd(5)));
        assert_eq!(of(100, 20, 5), Some(Usd(5)));
        assert_eq!(of(100, 93, 50), Some(Usd(7)), "a sixteenth of it is enough");
        assert_eq!(of(100, 95, 50), None);
        assert_eq!(of(100, 97, 3), Some(Usd(3)), "less than a sixteenth is its cap");
        assert_eq!(of(0, 0, 1), None);
        assert_eq!(of(0, 0, 0), Some(Usd(0)), "what costs nothing needs no money");
        assert_eq!(of(5, u64::MAX, 1), None);
    }
}
