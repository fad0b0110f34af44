from gangline.web.frame.routes import page_router
router = page_router()
