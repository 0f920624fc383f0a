"""The faces of a replay study: a table in the terminal, one self-contained page, one picture.

    terminal.show(study, console)     needs rich (extra `lab`)
    html.page(study)                  needs vl-convert (extra `report`)
    png.draw_picture(study)           needs vl-convert (extra `report`)

figures.py says how numbers look, names.py what things are called, palette.py which colour is whose, wording.py what is
said in sentences, charts.py what is drawn; page.html, page.css and page.js are the page around it.
"""
