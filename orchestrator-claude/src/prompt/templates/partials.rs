//! What templates include, in all of their branches: those that no rendering comes to as well.

use std::collections::BTreeSet;

use handlebars::Handlebars;
use handlebars::template::{
    DecoratorTemplate, HelperTemplate, Parameter, Template, TemplateElement,
};

use super::TemplateError;

/// The templates that this one includes, or one that it includes, and that do not exist.
pub(super) fn missing(engine: &Handlebars<'static>, name: &str) -> Vec<TemplateError> {
    let mut found = Found::default();
    let mut seen = BTreeSet::from([name.to_owned()]);
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        let Some(template) = engine.get_template(&name) else { continue };
        let before = found.includes.len();
        found.template(&name, template);
        for include in &found.includes[before..] {
            if seen.insert(include.partial.clone()) {
                open.push(include.partial.clone());
            }
        }
    }
    let Found { includes, inline } = found;
    let is_missing =
        |it: &Include| !engine.has_template(&it.partial) && !inline.contains(&it.partial);
    let error = |include| {
        let Include { template, line, column, partial } = include;
        TemplateError::MissingPartial { template, line, column, partial }
    };
    includes.into_iter().filter(is_missing).map(error).collect()
}

/// A place where a template is included.
struct Include {
    template: String,
    line: Option<usize>,
    column: Option<usize>,
    partial: String,
}

#[derive(Default)]
struct Found {
    includes: Vec<Include>,
    /// The names of those that are defined within a template.
    inline: BTreeSet<String>,
}

impl Found {
    fn template(&mut self, name: &str, template: &Template) {
        for (number, element) in template.elements.iter().enumerate() {
            if let TemplateElement::HelperBlock(block) = element {
                self.block(name, block);
            } else if let TemplateElement::DecoratorBlock(block) = element {
                self.inline.extend(block.params.first().and_then(literal).map(str::to_owned));
                self.inner(name, block.template.as_ref());
            } else if let TemplateElement::PartialExpression(partial) = element {
                let place = template.mapping.get(number).map(|place| (place.0, place.1));
                self.include(name, partial, place.unzip());
            } else if let TemplateElement::PartialBlock(partial) = element {
                // What it holds takes the place of one that does not exist.
                self.inner(name, partial.template.as_ref());
            }
        }
    }

    fn block(&mut self, name: &str, block: &HelperTemplate) {
        self.inner(name, block.template.as_ref());
        self.inner(name, block.inverse.as_ref());
    }

    fn inner(&mut self, name: &str, template: Option<&Template>) {
        if let Some(template) = template {
            self.template(name, template);
        }
    }

    fn include(
        &mut self,
        name: &str,
        partial: &DecoratorTemplate,
        (line, column): (Option<usize>, Option<usize>),
    ) {
        // A name that is computed is known when it is rendered, and `@partial-block` is none.
        let partial = partial.name.as_name();
        if let Some(partial) = partial.filter(|partial| !partial.starts_with('@')) {
            let (template, partial) = (name.to_owned(), partial.to_owned());
            self.includes.push(Include { template, line, column, partial });
        }
    }
}

fn literal(parameter: &Parameter) -> Option<&str> {
    if let Parameter::Literal(value) = parameter { value.as_str() } else { None }
}
