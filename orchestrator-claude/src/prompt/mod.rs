//! What an agent is told: templates, documents and the values that fill them.
//!
//! All that can be missing is found by [`Templates::check`] before anything is spent. Rendering is
//! one pass: braces in an error, an input or a document are text.

mod data;
mod documents;
mod templates;

pub use self::data::{
    ChangeText, FEEDBACK_BYTES_MAX, LEARNING_BYTES_MAX, LEARNINGS_BYTES_MAX, Values,
};
pub use self::documents::{DOCUMENT_BYTES_MAX, Document, DocumentError, Documents};
pub use self::templates::{PROMPT_BYTES_MAX, PromptFault, TemplateError, Templates};
