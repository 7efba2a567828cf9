{{/* The container of the second kube-scheduler. */}}

{{- define "gpushare.schedulerContainer" -}}
{{- $scheduler := .Values.scheduler -}}
name: kube-scheduler
image: {{ include "gpushare.schedulerImage" . }}
imagePullPolicy: {{ $scheduler.image.pullPolicy }}
command:
  - kube-scheduler
  - --config=/etc/gpushare/config.yaml
  - --v={{ $scheduler.verbosity }}
  {{- if semverCompare "<1.23.0-0" (include "gpushare.schedulerVersion" .) }}
  # Until 1.22 kube-scheduler also serves metrics without TLS by default.
  - --port=0
  {{- end }}
  {{- if .Values.monitoring.tls.enabled }}
  # Otherwise it creates a self-signed certificate at start, which no client can verify.
  - --tls-cert-file={{ include "gpushare.metricsFolder" . }}/tls.crt
  - --tls-private-key-file={{ include "gpushare.metricsFolder" . }}/tls.key
  {{- end }}
ports:
  - name: https
    containerPort: 10259
    protocol: TCP
livenessProbe:
  httpGet: {scheme: HTTPS, path: /healthz, port: https}
  initialDelaySeconds: 15
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {scheme: HTTPS, path: /healthz, port: https}
  periodSeconds: 2
  failureThreshold: 15
  timeoutSeconds: 5
resources:
  {{- include "gpushare.resources" $scheduler.resources | trim | nindent 2 }}
securityContext:
  {{- include "gpushare.restrictedContainer" . | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/gpushare
    readOnly: true
  {{- include "gpushare.metricsMount" . | nindent 2 }}
{{- end -}}
