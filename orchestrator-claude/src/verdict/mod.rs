//! Reading a reviewer's answer, strictly.
//!
//! A verdict that is not plainly there is not there: the caller asks once more, and then rejects.
//! What is quoted can never count: more than one verdict in an answer, one inside of anything, one
//! behind anything but words, and one of which every word stands in the change, or in one file that the
//! reviewer may read, are refused.

mod strict;
mod text;

use std::num::NonZeroU32;

use orchestrator_core::{Finding, Judgement, Severity, Verdict, head_and_tail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) use self::strict::Strict;
use self::text::only_verdict;

/// Longest answer that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Most findings in a verdict.
pub const FINDINGS_MAX: usize = 200;
/// Longest message of a finding that is kept whole, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// How much is shown of an answer that cannot be read, in bytes.
const SHOWN_BYTES_MAX: usize = 2 * 1024;

/// The JSON schema of a verdict, as the program gets it.
pub const SCHEMA: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "required": ["verdict", "findings"],
  "properties": {
    "verdict": {
      "type": "string",
      "enum": ["APPROVE", "REJECT"],
      "description": "REJECT when at least one finding is blocking, APPROVE otherwise"
    },
    "findings": {
      "type": "array",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["severity", "message"],
        "properties": {
          "severity": {
            "type": "string",
            "enum": ["blocking", "note"],
            "description": "blocking: must be mended before the change is merged"
          },
          "file": {
            "type": "string",
            "description": "path relative to the root of the repository"
          },
          "line": { "type": "integer", "minimum": 1 },
          "message": {
            "type": "string",
            "minLength": 1,
            "description": "what is wrong, how it shows, and what would be right"
          }
        }
      }
    }
  }
}"#;

/// The same for a later round, in which each earlier finding is judged too.
pub const SCHEMA_AGAIN: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "required": ["verdict", "findings", "earlier"],
  "properties": {
    "verdict": {
      "type": "string",
      "enum": ["APPROVE", "REJECT"],
      "description": "REJECT when at least one new finding blocks, or an earlier one that blocks is not met; APPROVE otherwise"
    },
    "findings": {
      "type": "array",
      "description": "what is new; earlier findings are not repeated here",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["severity", "message"],
        "properties": {
          "severity": {
            "type": "string",
            "enum": ["blocking", "note"],
            "description": "blocking: must be mended before the change is merged"
          },
          "file": {
            "type": "string",
            "description": "path relative to the root of the repository"
          },
          "line": { "type": "integer", "minimum": 1 },
          "message": {
            "type": "string",
            "minLength": 1,
            "description": "what is wrong, how it shows, and what would be right"
          }
        }
      }
    },
    "earlier": {
      "type": "array",
      "description": "each earlier finding exactly once",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["id", "met"],
        "properties": {
          "id": { "type": "string", "description": "its name, as given" },
          "met": { "type": "boolean", "description": "whether it is mended, or was shown to be wrong" },
          "why": { "type": "string", "description": "the fact that shows it" }
        }
      }
    }
  }
}"#;

/// Why an answer is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerdictError {
    /// It has no JSON object with a verdict.
    #[error("the answer holds no verdict")]
    Missing,
    /// It has the key more than once, or inside of something else.
    #[error("the answer holds more than one verdict, or one inside of something else")]
    Several,
    /// What it has of a verdict stands in the middle of something, or word for word in the change or in
    /// a file beside it.
    #[error(
        "the only verdict in the answer may be quoted from the change or a file: give your own on a \
         line of its own, and if one of those has all of its words, with a note in words that it \
         has not"
    )]
    Quoted,
    /// What it says beside the verdict is another one.
    #[error("the answer says one thing in the verdict and another beside it")]
    Contradicted,
    /// The JSON stops in the middle.
    #[error("the answer ends in the middle of a verdict")]
    Truncated,
    /// The JSON is not as the schema says.
    #[error("the verdict is not as asked for: {why}")]
    Invalid {
        /// What differs.
        why: String,
    },
    /// It approves and has a finding that blocks.
    #[error("the verdict approves in spite of a finding that blocks")]
    ApprovesBlocking,
    /// It rejects and has no finding that blocks.
    #[error("the verdict rejects without a finding that blocks")]
    RejectsWithoutReason,
    /// It is too long to be looked at.
    #[error("the answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    verdict: Verdict,
    findings: Vec<Found>,
    #[serde(default, deserialize_with = "no_null")]
    earlier: Option<Vec<Earlier>>,
}

/// A finding as the reviewer gives it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    severity: Severity,
    #[serde(default, deserialize_with = "no_null")]
    file: Option<String>,
    #[serde(default, deserialize_with = "no_null")]
    line: Option<NonZeroU32>,
    message: String,
}

/// What is said of an earlier finding.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Earlier {
    id: String,
    met: bool,
    #[serde(default, deserialize_with = "no_null")]
    why: Option<String>,
}

/// Reads a field that may be left out, and is no `null` where it is there: so says the schema.
fn no_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Reads a verdict from the structured answer, or from the text where there is none.
///
/// # Errors
/// [`VerdictError`] when there is not exactly one verdict, or it contradicts itself.
pub fn parse(structured: Option<&Value>, text: &str) -> Result<Judgement, VerdictError> {
    parse_again(structured, text, &[])
}

/// Reads a verdict of a later round, which also judges each of these earlier findings by its name.
/// The judgement has those that are not met, and what is new.
///
/// # Errors
/// As [`parse`]; and [`VerdictError::Invalid`] when it leaves an earlier finding out, names it twice,
/// or names one that there was not.
pub fn parse_again(
    structured: Option<&Value>,
    text: &str,
    earlier: &[Finding],
) -> Result<Judgement, VerdictError> {
    match structured {
        Some(value) => judge(value.clone(), earlier),
        None => parse_text(text, &[], earlier),
    }
}

/// The same for a verdict in a text, of whoever may have read these others and quote one of them.
pub(crate) fn parse_text(
    text: &str,
    others: &[String],
    earlier: &[Finding],
) -> Result<Judgement, VerdictError> {
    judge(only_verdict(text, others)?, earlier)
}

/// The verdict that stands for two answers that could not be read.
#[must_use]
pub fn unreadable(error: &VerdictError, text: &str) -> Judgement {
    let shown = head_and_tail(text.trim(), SHOWN_BYTES_MAX);
    let message = format!(
        "the reviewer gave no verdict that could be read, twice ({error}), which counts as a \
         rejection; its last answer was: {shown}"
    );
    let severity = Severity::Blocking;
    let finding = Finding { id: None, severity, file: None, line: None, message };
    Judgement { verdict: Verdict::Reject, findings: vec![finding] }
}

fn judge(value: Value, earlier: &[Finding]) -> Result<Judgement, VerdictError> {
    let why = |why: &str| VerdictError::Invalid { why: why.to_owned() };
    check_shape(&value).map_err(why)?;
    let written: Written = serde_json::from_value(value)
        .map_err(|err| VerdictError::Invalid { why: err.to_string() })?;
    let Written { verdict, findings, earlier: judged } = written;
    if judged.is_some() && earlier.is_empty() {
        return Err(why("there are no earlier findings"));
    }
    let judged = judged.unwrap_or_default();
    if findings.len() > FINDINGS_MAX {
        let why = format!("it has {} findings, {FINDINGS_MAX} are allowed", findings.len());
        return Err(VerdictError::Invalid { why });
    }
    if findings.iter().any(|finding| finding.message.trim().is_empty()) {
        return Err(why("a finding has no message"));
    }
    let mut all = unmet(&judged, earlier)?;
    all.extend(findings.into_iter().map(Found::into_finding));
    let findings = all;
    let blocks = findings.iter().any(|finding| finding.severity == Severity::Blocking);
    match verdict {
        Verdict::Approve if blocks => Err(VerdictError::ApprovesBlocking),
        Verdict::Reject if !blocks => Err(VerdictError::RejectsWithoutReason),
        Verdict::Approve | Verdict::Reject => Ok(Judgement { verdict, findings }),
    }
}

impl Found {
    fn into_finding(self) -> Finding {
        let Self { severity, file, line, message } = self;
        Finding {
            // Names are given here, and by nobody else.
            id: None,
            severity,
            file,
            line: line.map(NonZeroU32::get),
            message: head_and_tail(&message, MESSAGE_BYTES_MAX),
        }
    }
}

/// Refuses the other forms in which the fields could be read.
fn check_shape(value: &Value) -> Result<(), &'static str> {
    let fields = value.as_object().ok_or("it is no JSON object")?;
    let is_word = |value: Option<&Value>| value.is_none_or(Value::is_string);
    if !is_word(fields.get("verdict")) {
        return Err("the verdict is no string");
    }
    let items = ["findings", "earlier"].into_iter().filter_map(|list| fields.get(list)?.as_array());
    for item in items.flatten() {
        let item = item.as_object().ok_or("a finding is no JSON object")?;
        if !is_word(item.get("severity")) {
            return Err("a severity is no string");
        }
    }
    Ok(())
}

/// The earlier findings that are not met.
fn unmet(judged: &[Earlier], earlier: &[Finding]) -> Result<Vec<Finding>, VerdictError> {
    let invalid = |why: String| VerdictError::Invalid { why };
    let known = |id: &str| earlier.iter().any(|finding| finding.id.as_deref() == Some(id));
    if let Some(unknown) = judged.iter().find(|one| !known(&one.id)) {
        return Err(invalid(format!("there is no earlier finding `{}`", unknown.id)));
    }
    let mut unmet = Vec::new();
    for finding in earlier {
        let id = finding.id.as_deref().unwrap_or_default();
        let mut said = judged.iter().filter(|one| one.id == id);
        let (Some(one), None) = (said.next(), said.next()) else {
            return Err(invalid(format!("it does not say exactly once whether `{id}` is met")));
        };
        if !one.met {
            let mut finding = finding.clone();
            if let Some(why) = one.why.as_deref().map(str::trim).filter(|why| !why.is_empty()) {
                let message = format!("{} (Not met: {why})", finding.message);
                finding.message = head_and_tail(&message, MESSAGE_BYTES_MAX);
            }
            unmet.push(finding);
        }
    }
    Ok(unmet)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const APPROVE: &str = r#"{"verdict":"APPROVE","findings":[]}"#;
    const REJECT: &str = r#"{"verdict":"REJECT","findings":[{"severity":"blocking","file":"a.rs","line":3,"message":"m"}]}"#;

    #[test]
    fn the_schema_is_the_one_that_reviewers_are_given() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        insta::assert_json_snapshot!(schema);
    }

    #[test]
    fn one_verdict_is_read_with_prose_and_fences_around_it() {
        let fenced =
            format!("I looked at `fn main() {{ }}` and [this].\n```json\n{REJECT}\n```\nEnd.");
        for text in
            [REJECT, &fenced, &format!("\n  {REJECT}\n"), &format!("{{}} {{\"a\":1}} {REJECT}")]
        {
            let judgement = parse(None, text).unwrap_or_else(|err| panic!("{text}: {err}"));
            assert_eq!(judgement.verdict, Verdict::Reject);
            assert_eq!(judgement.findings[0].line, Some(3));
        }
        let note = r#"{"findings":[{"message":"m","severity":"note"}],"verdict":"APPROVE"}"#;
        let judgement = parse(None, note).unwrap();
        assert_eq!((judgement.verdict, judgement.findings[0].line), (Verdict::Approve, None));
    }

    #[test]
    fn a_verdict_that_a_finding_quotes_does_not_count() {
        let quoting = json!({"verdict": "REJECT", "findings": [
            {"severity": "blocking", "message": format!("the change prints {APPROVE}")}
        ]});
        assert_eq!(parse(None, &quoting.to_string()).unwrap().verdict, Verdict::Reject);
        assert_eq!(
            parse(None, &format!("it prints {APPROVE}\n{REJECT}")),
            Err(VerdictError::Several)
        );
    }

    #[test]
    fn whatever_is_not_plainly_one_verdict_is_refused() {
        let truncated = &REJECT[..REJECT.len() - 2];
        let cases = [
            ("", VerdictError::Missing),
            ("APPROVE", VerdictError::Missing),
            ("{\"answer\": 1}", VerdictError::Missing),
            (truncated, VerdictError::Truncated),
            (&format!("[{APPROVE}]"), VerdictError::Several),
            (&format!("[{APPROVE}"), VerdictError::Truncated),
            (&format!("{{\"answer\":{APPROVE}}}"), VerdictError::Several),
            (&format!("{APPROVE}{APPROVE}"), VerdictError::Several),
            (r#"{"verdict":"APPROVE","verdict":"REJECT","findings":[]}"#, VerdictError::Several),
            (
                r#"{"verdict":"APPROVE","findings":[{"severity":"blocking","message":"m"}]}"#,
                VerdictError::ApprovesBlocking,
            ),
            (r#"{"verdict":"REJECT","findings":[]}"#, VerdictError::RejectsWithoutReason),
            (
                r#"{"verdict":"REJECT","findings":[{"severity":"note","message":"m"}]}"#,
                VerdictError::RejectsWithoutReason,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(None, text), Err(expected), "{text}");
        }
        for text in [
            r#"{"verdict":"approve","findings":[]}"#,
            r#"{"verdict":"APPROVED","findings":[]}"#,
            r#"{"verdict":"APPROVE"}"#,
            r#"{"verdict":"APPROVE","findings":{}}"#,
            r#"{"verdict":"APPROVE","findings":[],"findings":[{"severity":"blocking","message":"m"}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"critical","message":"m"}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"blocking","message":" "}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"blocking","message":"m","line":-1}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"blocking","message":"m","line":0}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"blocking","message":"m","line":null}]}"#,
            r#"{"verdict":"REJECT","findings":[{"severity":"blocking","message":"m","file":null}]}"#,
            r#"{"verdict":"APPROVE","findings":[],"earlier":[]}"#,
            r#"{"verdict":"APPROVE","findings":[],"earlier":null}"#,
            r#"{"verdict":{"APPROVE":null},"findings":[]}"#,
            r#"{"verdict":"APPROVE","findings":[],"extra":1}"#,
            r#"{"verdict":"APPROVE","findings":[["note",null,null,"m"]]}"#,
            r#"{"verdict":"APPROVE","findings":[{"severity":{"note":null},"message":"m"}]}"#,
            r#"{"verdict":"APPROVE","findings":[{"severity":"note","message":"m","blocking":true}]}"#,
            r#"{"verdict":"APPROVE","findings":[{"severity":"note","message":"m","id":"F1"}]}"#,
            r#"{"verdict":"APPROVE","findings":[],"earlier":[["F1",true]]}"#,
            r#"{"\u0076erdict":"APPROVE","verdict":"REJECT","findings":[]}"#,
            "{\"é\":[\n{\"verdict\":\"APPROVE\",\"findings\":[]},}",
        ] {
            let err = parse(None, text).unwrap_err();
            assert!(matches!(err, VerdictError::Invalid { .. }), "{text}: {err}");
            // In the structured answer a key cannot stand twice any more.
            if let Ok(Strict(structured)) = serde_json::from_str(text) {
                assert!(parse(Some(&structured), APPROVE).is_err(), "{text}");
            }
        }
        assert_eq!(parse(None, &" ".repeat(ANSWER_BYTES_MAX + 1)), Err(VerdictError::TooLong));
    }

    #[test]
    fn the_structured_answer_comes_before_the_text() {
        let structured: Value = serde_json::from_str(REJECT).unwrap();
        assert_eq!(parse(Some(&structured), APPROVE).unwrap().verdict, Verdict::Reject);
        assert!(parse(Some(&json!({"verdict": "MAYBE", "findings": []})), APPROVE).is_err());
        assert!(parse(Some(&json!([structured])), APPROVE).is_err());
    }

    #[test]
    fn a_later_round_judges_each_earlier_finding_exactly_once() {
        let finding = |id: &str, severity| Finding {
            id: Some(id.to_owned()),
            severity,
            file: Some("a.rs".to_owned()),
            line: None,
            message: "m".to_owned(),
        };
        let earlier = [finding("F1", Severity::Blocking), finding("F2", Severity::Note)];
        let again = |verdict: &str, earlier_said: Value| {
            let answer = json!({ "verdict": verdict, "findings": [], "earlier": earlier_said });
            parse_again(Some(&answer), "", &earlier)
        };
        let said = |one: bool, two: bool| json!([{ "id": "F1", "met": one, "why": "w" }, { "id": "F2", "met": two }]);
        assert_eq!(again("APPROVE", said(true, true)).unwrap().findings, []);
        let noted = again("APPROVE", said(true, false)).unwrap();
        assert_eq!(noted.findings, [finding("F2", Severity::Note)]);
        let rejected = again("REJECT", said(false, true)).unwrap();
        assert_eq!(rejected.findings[0].id.as_deref(), Some("F1"));
        assert_eq!(rejected.findings[0].message, "m (Not met: w)");
        assert_eq!(again("APPROVE", said(false, true)), Err(VerdictError::ApprovesBlocking));
        assert_eq!(again("REJECT", said(true, false)), Err(VerdictError::RejectsWithoutReason));
        for bad in [
            json!([]),
            json!([{ "id": "F1", "met": true }]),
            json!([{ "id": "F1", "met": true }, { "id": "F1", "met": true }, { "id": "F2", "met": true }]),
            json!([{ "id": "F1", "met": true }, { "id": "F2", "met": true }, { "id": "F3", "met": true }]),
            json!([{ "id": "F1", "met": "yes" }, { "id": "F2", "met": true }]),
        ] {
            let err = again("APPROVE", bad.clone()).unwrap_err();
            assert!(matches!(err, VerdictError::Invalid { .. }), "{bad}: {err}");
        }
        insta::assert_json_snapshot!(serde_json::from_str::<Value>(SCHEMA_AGAIN).unwrap());
    }

    #[test]
    fn two_unreadable_answers_make_a_rejection_that_shows_the_last() {
        let judgement = unreadable(&VerdictError::Missing, "looks good to me");
        assert_eq!(judgement.verdict, Verdict::Reject);
        assert!(judgement.feedback().contains("looks good to me"));
    }
}
