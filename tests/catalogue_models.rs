//! Every model of the catalogue is read, and what the index says of it is what the reader finds.

use shardwise::catalogue::models;

/// Architectures that the reader refuses by name.
const REFUSED: &[&str] =
    &["IEITYuan/Yuan2-2B-hf", "stepfun-ai/Step-3.7-Flash", "stepfun-ai/Step-3.7-Flash-FP8"];

#[test]
fn the_index_says_what_the_reader_finds() {
    assert!(models::all().len() >= 150, "{} models", models::all().len());
    let mut faults = Vec::new();
    for model in models::all() {
        match model.spec() {
            Ok(spec) => {
                let found = (
                    spec.architecture.as_str(),
                    spec.parameters(),
                    spec.active_parameters(),
                    spec.context_length,
                    spec.quantization.as_str(),
                );
                let said = (
                    model.architecture,
                    model.parameters,
                    model.active_parameters,
                    model.context_length,
                    model.quantization,
                );
                if found != said {
                    faults.push(format!("{}: found {found:?}, the index says {said:?}", model.id));
                }
                assert!(spec.weights_bytes().get() > 0, "{}", model.id);
            }
            Err(error) if REFUSED.contains(&model.id) => drop(error),
            Err(error) => faults.push(format!("{}: {error}", model.id)),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn bases_and_shared_shapes_are_models_of_the_catalogue() {
    let known = |id: &str| models::all().iter().any(|model| model.id == id);
    for model in models::all() {
        for other in [model.base, model.same_shape_as].into_iter().flatten() {
            assert!(known(other), "{} points to {other}", model.id);
        }
        assert_eq!(models::find(model.id).map(|found| found.id), Ok(model.id));
    }
}

#[test]
fn no_two_models_share_an_alias() {
    let mut seen = std::collections::BTreeMap::new();
    for model in models::all() {
        for alias in model.aliases {
            assert_eq!(seen.insert(*alias, model.id), None, "{alias}");
        }
    }
}

/// `docs/MODELS.md` is what the program prints. `SHARDWISE_TEST_UPDATE=1` writes it.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
fn the_index_page_is_the_catalogue() {
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_shardwise"))
        .args(["models", "list", "--format", "markdown"])
        .output()
        .expect("the program runs");
    let printed = String::from_utf8(printed.stdout).expect("text");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MODELS.md");
    if std::env::var_os("SHARDWISE_TEST_UPDATE").is_some() {
        std::fs::write(path, &printed).expect("written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == printed, "docs/MODELS.md differs: run with SHARDWISE_TEST_UPDATE=1");
    for model in models::all() {
        assert!(printed.contains(&format!("| {} |", model.id)), "{}", model.id);
    }
}
