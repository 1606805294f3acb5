//! Start-up logs of engines to the settings and figures in them.
