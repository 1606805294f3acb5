//! Where values come from, and how they are laid over one another.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::{ConfigError, DEFAULTS};

/// The prefix of our variables.
const PREFIX: &str = "SHARDWISE_";

/// Variables that other programs read too, with our setting.
const GENERAL: [(&str, &str); 7] = [
    ("DATABASE_URL", "database.url"),
    ("HF_ENDPOINT", "hub.endpoint"),
    ("HF_TOKEN", "hub.token"),
    ("SLACK_SIGNING_SECRET", "slack.signing_secret"),
    ("SLACK_SIGNING_SECRET_FILE", "slack.signing_secret_file"),
    ("SLACK_BOT_TOKEN", "slack.bot_token"),
    ("SLACK_BOT_TOKEN_FILE", "slack.bot_token_file"),
];

/// Settings whose values are never shown.
const SECRETS: [&str; 4] = ["database.url", "hub.token", "slack.signing_secret", "slack.bot_token"];

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The compiled-in defaults.
    Default,
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of the command.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("built-in default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The process environment: the one place where it is read.
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// Values by `section.key`, each with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Sources {
    values: BTreeMap<String, (Value, Origin)>,
    /// Variables with our prefix that are no setting. Not an error: Kubernetes gives every container
    /// `SHARDWISE_SERVICE_HOST` and more when a service is called `shardwise`.
    pub unknown_variables: Vec<String>,
}

impl Sources {
    /// The compiled-in defaults.
    ///
    /// # Errors
    /// Never in a tested program: the defaults file is compiled in.
    pub fn defaults() -> Result<Self, ConfigError> {
        let mut sources = Self { values: BTreeMap::new(), unknown_variables: Vec::new() };
        sources.lay(&table(DEFAULTS, &Origin::Default)?, &Origin::Default);
        Ok(sources)
    }

    /// Lay a file of the same form over them.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or holds a key that is no setting.
    pub fn file(mut self, path: &Path) -> Result<Self, Vec<ConfigError>> {
        let origin = Origin::File(path.to_path_buf());
        let fault = |detail: String| vec![ConfigError { origin: origin.clone(), detail }];
        let text = std::fs::read_to_string(path).map_err(|e| fault(format!("cannot be read: {e}")))?;
        let unknown = self.lay(&table(&text, &origin).map_err(|e| vec![e])?, &origin);
        if unknown.is_empty() {
            return Ok(self);
        }
        Err(unknown.iter().flat_map(|key| fault(format!("there is no setting `{key}`"))).collect())
    }

    /// Lay variables over them: `SHARDWISE_<SECTION>_<KEY>`, and `DATABASE_URL`.
    ///
    /// # Errors
    /// When a value does not read as the kind of its setting.
    pub fn variables(mut self, variables: &BTreeMap<String, String>) -> Result<Self, Vec<ConfigError>> {
        let mut faults = Vec::new();
        let ours = variables.iter().filter_map(|(name, text)| Some((name, name.strip_prefix(PREFIX)?, text)));
        // the general name first, so that our own wins
        let general = GENERAL
            .iter()
            .filter_map(|(name, _)| variables.get_key_value(*name).map(|(own, text)| (own, *name, text)));
        for (name, rest, text) in general.chain(ours) {
            let Some(key) = self.key_of_variable(rest) else {
                if !matches!(rest, "CONFIG") && !rest.starts_with("TEST_") {
                    self.unknown_variables.push(name.clone());
                }
                continue;
            };
            faults.extend(self.set(&key, text, Origin::Variable(name.clone())).err());
        }
        if faults.is_empty() { Ok(self) } else { Err(faults) }
    }

    /// Lay one flag over them; `flag` is its name for errors.
    ///
    /// # Errors
    /// When there is no such setting, or the value does not read as its kind.
    pub fn flag(mut self, flag: &str, key: &str, text: &str) -> Result<Self, Vec<ConfigError>> {
        self.set(key, text, Origin::Flag(flag.to_owned())).map_err(|error| vec![error])?;
        Ok(self)
    }

    /// Where the value of a setting came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.values.get(key).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Every setting with its value and origin; secrets are not shown.
    pub fn shown(&self) -> impl Iterator<Item = (&str, String, &Origin)> {
        self.values.iter().map(|(key, (value, origin))| {
            let secret = SECRETS.contains(&key.as_str()) && value.as_str() != Some("");
            (key.as_str(), if secret { "[redacted]".to_owned() } else { value.to_string() }, origin)
        })
    }

    /// The values as a struct of settings.
    ///
    /// # Errors
    /// The first value of the wrong kind.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let mut whole = Table::new();
        for (key, (value, _)) in &self.values {
            if let Some((section, name)) = key.split_once('.')
                && let Value::Table(section) =
                    whole.entry(section).or_insert_with(|| Value::Table(Table::new()))
            {
                section.insert(name.to_owned(), value.clone());
            }
        }
        serde_path_to_error::deserialize(Value::Table(whole)).map_err(|error| {
            let key = error.path().to_string();
            let why = error.inner().message().to_owned();
            ConfigError { origin: self.origin(&key), detail: format!("{key}: {why}") }
        })
    }

    /// The keys of the table that are no setting.
    fn lay(&mut self, table: &Table, origin: &Origin) -> Vec<String> {
        let mut unknown = Vec::new();
        for (section, keys) in table {
            let Value::Table(keys) = keys else {
                unknown.push(section.clone());
                continue;
            };
            for (name, value) in keys {
                let key = format!("{section}.{name}");
                if *origin == Origin::Default || self.values.contains_key(&key) {
                    self.values.insert(key, (value.clone(), origin.clone()));
                } else {
                    unknown.push(key);
                }
            }
        }
        unknown
    }

    fn key_of_variable(&self, rest: &str) -> Option<String> {
        if let Some((_, key)) = GENERAL.iter().find(|(name, _)| *name == rest) {
            return Some((*key).to_owned());
        }
        let (section, name) = rest.split_once('_')?;
        let key = format!("{}.{}", section.to_lowercase(), name.to_lowercase());
        self.values.contains_key(&key).then_some(key)
    }

    /// A text as the kind of value that the setting has.
    fn set(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let Some((old, _)) = self.values.get(key) else {
            return Err(ConfigError { origin, detail: format!("there is no setting `{key}`") });
        };
        let text = text.trim();
        let (value, kind) = match old {
            Value::Integer(_) => (text.replace('_', "").parse().ok().map(Value::Integer), "an integer"),
            Value::Boolean(_) => (text.parse().ok().map(Value::Boolean), "true or false"),
            _ => (Some(Value::String(text.to_owned())), "a text"),
        };
        match value {
            Some(value) => {
                self.values.insert(key.to_owned(), (value, origin));
                Ok(())
            }
            None => Err(ConfigError { origin, detail: format!("{key} takes {kind}, got {text:?}") }),
        }
    }
}

fn table(text: &str, origin: &Origin) -> Result<Table, ConfigError> {
    text.parse()
        .map_err(|error: toml::de::Error| ConfigError { origin: origin.clone(), detail: error.to_string() })
}

/// An address, or nothing where the text is empty.
pub(super) fn maybe_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
}
