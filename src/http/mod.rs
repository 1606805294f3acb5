//! The HTTP face: routes, problems, extractors; it never computes.
//!
//! A request passes, from outside in: compression, the [`front`] (id, room, deadline, metrics, headers), a net for
//! panics, its handler. Every error on the way is a [`problem::Problem`].

pub mod conditional;
pub mod docs;
pub mod extract;
pub mod front;
pub mod health;
mod kind;
pub mod openapi;
pub mod page;
pub mod problem;
pub mod schema;
pub mod server;
mod slack;
pub mod v1;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::{CompressionLayer, CompressionLevel};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use front::Front;
use problem::{Kind, Problem};

use crate::config;
use crate::service::App;
use crate::slack::Slack;

pub use openapi::openapi_json;
pub use server::serve;

/// What handlers share.
#[derive(Clone)]
pub struct State {
    pub app: Arc<App>,
    /// Bytes of a body at most.
    pub body_limit: usize,
    /// Set once the server was told to stop.
    pub stopping: Arc<AtomicBool>,
    /// The Slack face, where it is set up.
    pub slack: Option<Arc<Slack>>,
}

/// Every route that the OpenAPI document describes.
fn described() -> OpenApiRouter<State> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(v1::plans::create_plan))
        .routes(routes!(v1::plans::get_plan))
        .routes(routes!(v1::fits::create_fits, v1::fits::get_fits))
        .routes(routes!(v1::fleet::create_sizing))
        .routes(routes!(v1::fleet::create_sweep))
        .routes(routes!(v1::fleet::create_batch))
        .routes(routes!(v1::fleet::create_question))
        .routes(routes!(v1::models::list_models))
        .routes(routes!(v1::models::inspect_model))
        .routes(routes!(v1::models::refresh_model))
        .routes(routes!(v1::models::get_model, v1::models::put_model, v1::models::delete_model))
        .routes(routes!(v1::hardware::list_gpus))
        .routes(routes!(v1::hardware::list_nodes))
        .routes(routes!(v1::hardware::list_links))
        .routes(routes!(v1::hardware::list_engines))
        .routes(routes!(v1::clusters::parse_cluster))
        .routes(routes!(v1::checks::check_deployment))
        .routes(routes!(v1::launches::create_launches))
        .routes(routes!(v1::observations::compare_log, v1::observations::list_observations))
        .routes(routes!(v1::observations::get_observation, v1::observations::delete_observation))
        .routes(routes!(v1::observations::get_accuracy))
        .routes(routes!(v1::clusters::list_clusters))
        .routes(routes!(v1::clusters::get_cluster, v1::clusters::put_cluster, v1::clusters::delete_cluster))
        .routes(routes!(v1::kv::compare_prefixes))
        .routes(routes!(v1::kv::compare_moves))
        .routes(routes!(v1::kv::check_handover))
        .routes(routes!(v1::kv::compare_sequences))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(problem::get_problem))
        .routes(routes!(docs::get_openapi))
}

/// The whole service as one router, without Slack.
pub fn router(app: Arc<App>, settings: &config::Server, stopping: Arc<AtomicBool>) -> Router {
    router_with(app, settings, stopping, None)
}

/// The whole service as one router.
pub fn router_with(
    app: Arc<App>,
    settings: &config::Server,
    stopping: Arc<AtomicBool>,
    slack: Option<Arc<Slack>>,
) -> Router {
    let state = State { app, body_limit: settings.body_limit_bytes, stopping, slack };
    let front = Front::new(settings.max_in_flight, Duration::from_millis(settings.request_timeout_ms));
    let (routes, _) = described().split_for_parts();
    routes
        .merge(page::routes())
        .merge(docs::routes())
        .merge(slack::routes())
        .fallback(nothing_here)
        .method_not_allowed_fallback(no_such_method)
        .with_state(state)
        .layer(CatchPanicLayer::custom(front::panicked))
        .layer(middleware::from_fn_with_state(front, front::pass))
        // answers are made in under a millisecond: more effort for fewer bytes would cost more than it saves
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

async fn nothing_here(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(Kind::NotFound, format!("there is nothing at {path}"))
}

async fn no_such_method(request: Request) -> Problem {
    let method: String = request.method().as_str().chars().take(40).collect();
    Problem::new(Kind::MethodNotAllowed, format!("{method} is not offered here"))
}
