//! Several reviewers that judge together.

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Change, Review, Reviewer, StageContext};
use orchestrator_core::{
    BlobHash, Cost, Finding, Judgement, Outcome, Severity, StageName, Usd, Verdict,
};
use tokio::task::JoinSet;

use crate::call::sum;
use crate::kept::MEMBER;

/// How the verdicts of several reviewers become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanelRule {
    /// The change is approved when all approve it.
    All,
    /// The change is approved when more than half approve it.
    Majority,
}

/// Several reviewers that judge the same change at the same time, without knowing of each other.
///
/// What the stage may spend is shared out in equal parts. A reviewer that comes to no verdict ends
/// the review as its own would have ended. A finding that blocks in the eyes of a minority is a note
/// when the majority approves.
///
/// ```
/// use std::sync::Arc;
/// use orchestrator_claude::{ClaudeConfig, ClaudeReviewer, Panel, PanelRule};
///
/// let reviewer = |model| Arc::new(ClaudeReviewer::new(ClaudeConfig::new("claude", model)));
/// let panel = Panel::new(PanelRule::Majority, reviewer("claude-sonnet-5-5"))
///     .and(reviewer("claude-haiku-5"))
///     .and(reviewer("claude-opus-5-5"));
/// # drop(panel);
/// ```
///
/// A model that the stage itself names is every member's, so leave it out there.
#[derive(Clone)]
pub struct Panel {
    members: Vec<Arc<dyn Reviewer>>,
    rule: PanelRule,
}

impl std::fmt::Debug for Panel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members = self.members.len();
        f.debug_struct("Panel").field("members", &members).field("rule", &self.rule).finish()
    }
}

impl Panel {
    /// The first reviewer of a panel that goes by this rule.
    #[must_use]
    pub fn new(rule: PanelRule, first: Arc<dyn Reviewer>) -> Self {
        Self { members: vec![first], rule }
    }

    /// With one more reviewer.
    #[must_use]
    pub fn and(mut self, member: Arc<dyn Reviewer>) -> Self {
        self.members.push(member);
        self
    }

    /// What a member is told: a share of the money, and places of its own.
    fn context(&self, cx: &StageContext, number: usize) -> StageContext {
        let mut own = cx.clone();
        let members = NonZeroUsize::new(self.members.len()).unwrap_or(NonZeroUsize::MIN);
        let share = u64::try_from(members.get()).unwrap_or(u64::MAX);
        own.stage.cap = Usd(cx.stage.cap.0 / share);
        own.dir = cx.dir.join(format!("{MEMBER}{number}"));
        // Its rounds are kept by the name of its stage.
        let names = [
            format!("{}-{number}", cx.stage.name),
            format!("{}-{number}", BlobHash::of(cx.stage.name.as_str().as_bytes())),
        ];
        if let Some(name) = names.iter().find_map(|name| StageName::parse(name).ok()) {
            own.stage.name = name;
        }
        own
    }

    fn verdict(&self, judgements: &[Judgement]) -> Verdict {
        let approving = judgements.iter().filter(|one| one.verdict == Verdict::Approve).count();
        let is_approved = match self.rule {
            PanelRule::All => approving == judgements.len(),
            PanelRule::Majority => approving * 2 > judgements.len(),
        };
        if is_approved { Verdict::Approve } else { Verdict::Reject }
    }

    fn together(&self, judgements: Vec<Judgement>) -> Judgement {
        let verdict = self.verdict(&judgements);
        let named = (1_usize..).zip(judgements).flat_map(|(number, judgement)| {
            let rename = move |finding: Finding| {
                let id = finding.id.map(|id| format!("{number}/{id}"));
                let severity = match verdict {
                    Verdict::Approve => Severity::Note,
                    Verdict::Reject => finding.severity,
                };
                Finding { id, severity, ..finding }
            };
            judgement.findings.into_iter().map(rename)
        });
        Judgement { verdict, findings: named.collect() }
    }
}

#[async_trait]
impl Reviewer for Panel {
    async fn review(&self, cx: &StageContext, change: &Change) -> Review {
        let mut running = JoinSet::new();
        for (place, member) in self.members.iter().enumerate() {
            let (member, change) = (Arc::clone(member), change.clone());
            let own = self.context(cx, place + 1);
            running.spawn(async move { (place, member.review(&own, &change).await) });
        }
        let mut reviews: Vec<(usize, Review)> = Vec::with_capacity(self.members.len());
        let mut broken = None;
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok(review) => reviews.push(review),
                Err(err) => broken = Some(format!("a reviewer broke off: {err}")),
            }
        }
        reviews.sort_by_key(|(place, _)| *place);
        let mut cost = reviews.iter().map(|(_, review)| review.cost).fold(Cost::NONE, sum);
        if let Some(error) = broken {
            cost = sum(cost, Cost::AtLeast(Usd::ZERO));
            return Review { judgement: Err(Outcome::Fatal { error }), cost };
        }
        let judgements: Result<Vec<Judgement>, Outcome> =
            reviews.into_iter().map(|(_, review)| review.judgement).collect();
        Review { judgement: judgements.map(|all| self.together(all)), cost }
    }
}
