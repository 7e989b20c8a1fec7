//! What a plan may not say.

use crate::plan::Plan;

/// Texts of plans that cannot be carried out, and a part of what is said about each.
const REFUSED: &[(&str, &str)] = &[
    (r#"[{"id": "a", "verify": "true", "depends_on": ["b"]}]"#, "which does not exist"),
    (r#"[{"id": "a", "verify": "true", "depends_on": ["a"]}]"#, "depends on itself"),
    (
        r#"[{"id": "a", "verify": "true", "depends_on": ["b"]},
            {"id": "b", "verify": "true", "depends_on": ["a"]}]"#,
        "a → b → a",
    ),
    (
        r#"[{"id": "a", "verify": "true", "depends_on": ["c"]},
            {"id": "b", "verify": "true", "depends_on": ["a"]},
            {"id": "c", "verify": "true", "depends_on": ["b"]}]"#,
        "a → c → b → a",
    ),
    (r#"[{"id": "a", "verify": "true", "pipeline": "fast"}]"#, "names pipeline `fast`"),
    (
        r#"{"tasks": [{"id": "a", "verify": "true", "needs": {"gpu": 2}}], "pools": {"gpu": 1}}"#,
        "needs 2 permits of pool `gpu`, which has 1",
    ),
];

pub(super) fn check() -> Result<(), String> {
    for (text, expected) in REFUSED {
        match Plan::parse(text) {
            Ok(_) => return Err(format!("a plan was taken that {expected}")),
            Err(errors) if errors.to_string().contains(expected) => {}
            Err(errors) => return Err(format!("`{errors}` does not say `{expected}`")),
        }
    }
    Ok(())
}
