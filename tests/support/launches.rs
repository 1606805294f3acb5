//! What is written to start a layout, asked for and read back.

use serde_json::Value;
use shardwise::ingest::check::{Described, written};
use shardwise::ingest::json::Document;
use shardwise::launch::platform::Platform;
use shardwise::service::ServiceError;
use shardwise::service::launches::{LaunchesAnswer, PlatformLaunch, launches_offline};

pub fn ask(question: &Value) -> Result<LaunchesAnswer, ServiceError> {
    launches_offline(&Document { value: question.clone(), duplicates: Vec::new() })
}

pub fn platforms() -> Vec<&'static str> {
    Platform::named().into_iter().map(|(name, _)| name).collect()
}

/// What the files of a platform start, workers of a leader left out.
pub fn read_back(launch: &PlatformLaunch) -> Vec<Described> {
    let texts: Vec<(&str, &str)> = launch.files.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    let (found, _) = written(&texts).expect("it can be read");
    found.into_iter().filter(|d| d.deployment.role != "headless").collect()
}
