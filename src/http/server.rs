//! Listeners, and the way to stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::router_with;
use crate::config::Server;
use crate::service::{App, Background, Predictions};
use crate::slack::Slack;

/// How long the plans that wait for the database may hold up the end.
const LAST_WRITES: Duration = Duration::from_secs(3);

/// Serve until `stop` is done; then `/readyz` fails, requests are taken a while longer, those in work end, and
/// what waits for the database is written. `listening` is told the addresses, once they are taken.
///
/// # Errors
/// When an address cannot be listened on.
pub async fn serve(
    app: Arc<App>,
    background: Background,
    settings: &Server,
    metrics: Option<PrometheusHandle>,
    slack: Option<Arc<Slack>>,
    stop: impl Future<Output = ()> + Send,
    listening: impl FnOnce(SocketAddr, Option<SocketAddr>),
) -> io::Result<()> {
    let api = listen(settings.listen).await?;
    let pages = match (settings.metrics_listen, metrics) {
        (Some(address), Some(handle)) => Some((listen(address).await?, handle)),
        _ => None,
    };
    let predictions = app.predictions();
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = router_with(app, settings, Arc::clone(&stopping), slack);
    let beside = tokio::spawn(background.run());
    let (close, closed) = watch::channel(false);
    let pages_address = pages.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
    listening(api.local_addr()?, pages_address);
    let pages = pages
        .map(|(listener, handle)| tokio::spawn(serve_metrics(listener, handle, predictions, closed.clone())));

    let served = tokio::spawn(
        axum::serve(api.tap_io(|stream| _ = stream.set_nodelay(true)), routes)
            .with_graceful_shutdown(until(closed))
            .into_future(),
    );
    stop.await;
    tracing::info!(drain_ms = settings.drain_ms, "stopping: no longer ready");
    stopping.store(true, Ordering::Release);
    tokio::time::sleep(Duration::from_millis(settings.drain_ms)).await;
    close.send_replace(true);
    let within = Duration::from_millis(settings.stop_timeout_ms);
    if tokio::time::timeout(within, served).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut");
    }
    if let Some(pages) = pages {
        pages.abort();
    }
    // the last routes are gone with their requests, so the queue of plans ends
    if tokio::time::timeout(LAST_WRITES, beside).await.is_err() {
        tracing::warn!("some plans could not be stored before the end");
    }
    tracing::info!("stopped");
    Ok(())
}

async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}")))
}

async fn until(mut closed: watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}

/// `/metrics` in Prometheus' text form, on its own listener.
async fn serve_metrics(
    listener: TcpListener,
    handle: PrometheusHandle,
    predictions: Arc<Predictions>,
    closed: watch::Receiver<bool>,
) {
    let text = move || async move {
        handle.run_upkeep();
        (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            handle.render() + &predictions.text(),
        )
    };
    let routes = Router::new().route("/metrics", get(text));
    if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(until(closed)).await {
        tracing::error!(%error, "metrics are no longer served");
    }
}

/// Done when the process is told to stop: SIGTERM or an interrupt.
pub async fn told_to_stop() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => _ = signal.recv().await,
            Err(_) => std::future::pending::<()>().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
